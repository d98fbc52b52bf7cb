"""Hugging Face Trainer on random tokens, without a callback: the Trainer says when a step begins and the optimizer when it ends.

    mfu run -c gpt2 --set workload.grad_accum=4 python examples/hf_trainer/train.py --model gpt2 --grad-accum 4
    mfu run -c gpt2 accelerate launch --num_processes 8 examples/hf_trainer/train.py --model gpt2

Needs PyTorch, transformers, accelerate and a CUDA GPU; the model is made from its config, no weights are loaded. A region
holds one optimizer step with all its micro-batches: `batch` is that of one, workload.grad_accum says how many.
"""

import argparse


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="gpt2", help="a model id or folder; only its config is read")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=8, help="sequences per micro-batch and rank")
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--grad-accum", type=int, default=1)
    return parser.parse_args(words)


def with_steps(trainer_class, region):
    """`trainer_class` with `region` around each optimizer step: opened by its first micro-batch, closed by the optimizer."""

    class StepTrainer(trainer_class):
        _in_step = False

        def training_step(self, *args, **kwargs):
            if not self._in_step:
                region.__enter__()
                self._in_step = True
            return super().training_step(*args, **kwargs)

        def create_optimizer(self, *args, **kwargs):
            optimizer = super().create_optimizer(*args, **kwargs)
            optimizer.register_step_post_hook(self._step_done)
            return optimizer

        def _step_done(self, *_):
            if self._in_step:
                region.__exit__(None, None, None)
                self._in_step = False

    return StepTrainer


def main():
    args = arguments()
    import mfuinject
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

    config = AutoConfig.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_config(config)

    class RandomTokens(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 20

        def __getitem__(self, index):
            ids = torch.randint(config.vocab_size, (args.seq_len,), generator=torch.Generator().manual_seed(index))
            return {"input_ids": ids, "labels": ids}

    region = mfuinject.region("step", batch=args.batch, seq_len=args.seq_len)
    trainer = with_steps(Trainer, region)(
        model=model,
        args=TrainingArguments(
            output_dir="/tmp/mfuinject-hf-trainer", max_steps=args.steps, per_device_train_batch_size=args.batch,
            gradient_accumulation_steps=args.grad_accum, bf16=True, save_strategy="no", report_to=[], logging_steps=10,
            dataloader_num_workers=2),
        train_dataset=RandomTokens(),
    )
    trainer.train()


if __name__ == "__main__":
    main()
