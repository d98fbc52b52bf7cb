"""Training by packages around PyTorch, as their own documents show it: packages.py lightning|sentences|timm|titan|titan-graphs. The ranges
note what they do, and hold their shape; a backward pass is two of `passes`."""

import json
import os
import pathlib
import sys

import torch
from torch import nn

torch.manual_seed(1)
WIDTH, HEADS, LAYERS = 256, 4, 3


def begin(name, **shape):
    torch.cuda.nvtx.range_push(" ".join([name, *(f"{k}={v}" for k, v in shape.items())]))


def end():
    torch.cuda.nvtx.range_pop()


def write_tokenizer(folder, words):
    """A tokenizer of whole words, in the files that transformers and torchtitan read."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(special + words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", [("[CLS]", 2), ("[SEP]", 3)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special))
    more = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "[CLS]", "eos_token": "[SEP]", "model_max_length": 128}
    (folder / "tokenizer_config.json").write_text(json.dumps(names | more))


WORDS = [f"word{i}" for i in range(500)]


def text(number, length):
    return " ".join(WORDS[(number * 31 + i * 7) % len(WORDS)] for i in range(length))


def lightning():
    """Two batches to a step, and an evaluation after 16 of them."""
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
            self.encoder, self.head = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False), nn.Linear(WIDTH, 10)

        def forward(self, x):
            return self.head(self.encoder(x).mean(1))

        def training_step(self, batch, number):
            x, y = batch
            return nn.functional.cross_entropy(self(x), y)

        def validation_step(self, batch, number):
            x, y = batch
            self.log("loss", nn.functional.cross_entropy(self(x), y))

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), fused=True)

    class Noted(lightning.Callback):
        def on_train_batch_start(self, trainer, module, batch, number):
            if number % 2 == 0:
                begin("step", batch=8, seq_len=32, passes=6)

        def on_train_batch_end(self, trainer, module, outputs, batch, number):
            if number % 2 == 1:
                end()

        def on_validation_batch_start(self, trainer, module, batch, number, loader=0):
            begin("eval", batch=8, seq_len=32)

        def on_validation_batch_end(self, trainer, module, outputs, batch, number, loader=0):
            end()

    def data(batches):
        values = torch.utils.data.TensorDataset(torch.randn(8 * batches, 32, WIDTH), torch.randint(10, (8 * batches,)))
        return torch.utils.data.DataLoader(values, 8, num_workers=0)

    trainer = lightning.Trainer(
        max_epochs=2, accumulate_grad_batches=2, precision="bf16-mixed", accelerator="cuda", devices=1, logger=False, callbacks=[Noted()],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=os.getcwd(),
    )
    trainer.fit(Model(), data(16), data(4))
    print("steps", trainer.global_step)


def sentences():
    """Pairs of a short and a long sentence, then embeddings of sentences of other lengths."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        models,
    )
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import BertConfig, BertModel, TrainerCallback

    folder = pathlib.Path("bert")
    write_tokenizer(folder, WORDS)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 4 * WIDTH}
    BertModel(BertConfig(vocab_size=505, **sizes)).save_pretrained(folder)
    words = models.Transformer(str(folder))
    model = SentenceTransformer(modules=[words, models.Pooling(WIDTH)], device="cuda")

    class Noted(TrainerCallback):
        def on_step_begin(self, arguments, state, control, **more):
            begin("step", batch=16, seq_len=12, other=26, passes=3)

        def on_step_end(self, arguments, state, control, **more):
            end()

    pairs = Dataset.from_dict({"anchor": [text(i, 10) for i in range(320)], "positive": [text(i + 1, 24) for i in range(320)]})
    arguments = SentenceTransformerTrainingArguments(
        output_dir="out", max_steps=20, per_device_train_batch_size=16, bf16=True, report_to="none", save_strategy="no", disable_tqdm=True
    )
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model), callbacks=[Noted()]
    )
    trainer.train()
    for i in range(12):
        begin("eval", batch=16, seq_len=7 + i)  # of words, and one token before and behind them
        model.encode([text(k, 5 + i) for k in range(16)], batch_size=16, show_progress_bar=False)
        end()
    print("steps", trainer.state.global_step)


def timm():
    """A vision transformer with timm's optimizer, its average of weights and its evaluation."""
    import timm
    import timm.optim
    import timm.utils

    torch.backends.cudnn.enabled = False  # it does not start on the simulated GPU
    model = timm.create_model("vit_tiny_patch16_224", num_classes=10, depth=LAYERS).cuda()
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3)
    scaler, average = timm.utils.NativeScaler(), timm.utils.ModelEmaV3(model, decay=0.99)
    pictures = torch.randn(8, 3, 224, 224, device="cuda")
    wanted = torch.zeros(8, dtype=torch.int64, device="cuda")
    for i in range(20):
        begin("step", batch=8, seq_len=197, passes=3)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(pictures), wanted)
        optimizer.zero_grad()
        scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
        average.update(model)
        end()
        if i % 5 == 4:
            average.eval()
            with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
                begin("eval", batch=8, seq_len=197)
                average(pictures)
                end()
    print("done")


def titan(graphs=False):
    """A small Llama with checkpoints and its loss by parts. Attention stays within the documents that each row holds."""
    from torchtitan.hf_datasets import text_datasets
    from torchtitan.models.llama3.config_registry import llama3_debugmodel
    from torchtitan.trainer import Trainer

    write_tokenizer(pathlib.Path("tokenizer"), WORDS)
    texts = [{"text": text(i, 900)} for i in range(200)]
    text_datasets.DATASETS["c4_test"].loader = lambda path: __import__("datasets").Dataset.from_list(texts)
    config = llama3_debugmodel()
    config.hf_assets_path = "tokenizer"
    config.training.local_batch_size, config.training.seq_len, config.training.steps = 2, 256, 15
    config.training.disable_cuda_graphs = not graphs
    for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}.items():
        os.environ.setdefault(name, str(value))
    train_step = Trainer.train_step

    def noted(self, *words, **more):
        begin("step", batch=2, seq_len=256)
        try:
            return train_step(self, *words, **more)
        finally:
            end()

    Trainer.train_step = noted
    trainer = config.build()
    trainer.train()
    trainer.close()
    torch.distributed.destroy_process_group()
    print("steps", trainer.step)


MODES = {"lightning": lightning, "sentences": sentences, "timm": timm, "titan": titan, "titan-graphs": lambda: titan(True)}

if __name__ == "__main__":
    MODES[sys.argv[1]]()
    torch.cuda.synchronize()
