"""A callback for the Trainer of Hugging Face transformers.

    from mfuinject.hf import MfuCallback
    trainer = Trainer(..., callbacks=[MfuCallback(seq_len=2048)])

Run the program with `mfu run`. Each optimizer step becomes a `step` region, and the newest MFU joins what the Trainer logs.
"""

from __future__ import annotations

import os
from typing import Any, Optional

from transformers import TrainerCallback

from ._region import Region, region
from ._run_dir import latest


class MfuCallback(TrainerCallback):  # type: ignore[misc]
    """Marks each optimizer step, with all its micro-batches, and adds `mfu/step/mfu` and its like to the Trainer's logs.

    seq_len: tokens per sequence, where they are all the same; else workload.seq_len of the config, or tokens are not known.
    gradient_accumulation_steps: micro-batches of a step; by default the Trainer's. Where the config gives workload.grad_accum,
    that one counts.
    """

    def __init__(
        self, seq_len: Optional[int] = None, log: bool = True, gradient_accumulation_steps: Optional[int] = None
    ) -> None:
        self._seq_len, self._log = seq_len, log
        self._micro_batches = 1 if _config_accumulates() else gradient_accumulation_steps
        self._open: Optional[Region] = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._close()
        micro_batches = self._micro_batches or getattr(args, "gradient_accumulation_steps", 1)
        self._open = region("step", batch=args.per_device_train_batch_size * micro_batches, seq_len=self._seq_len)
        self._open.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._close()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._close()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not self._log or logs is None or not state.is_world_process_zero:
            return
        figures = {f"mfu/{name}": value for name, value in latest().items()}
        logs.update(figures)
        if state.log_history:
            state.log_history[-1].update(figures)

    def _close(self) -> None:
        if self._open is not None:
            self._open.__exit__()
            self._open = None


def _config_accumulates() -> bool:
    """True if the config of this run says how many micro-batches a step has (MFU_SET, or the file or text that is named)."""
    text = os.environ.get("MFU_SET", "") + os.environ.get("MFU_MODEL_CONFIG", "")
    try:
        with open(os.environ.get("MFU_MODEL_CONFIG", ""), encoding="utf-8") as file:
            text += file.read(1 << 20)
    except (OSError, ValueError):
        pass  # a model id, a folder, or the JSON itself
    return "grad_accum" in text
