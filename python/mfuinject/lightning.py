"""A callback for Lightning.

    from mfuinject.lightning import MfuCallback
    trainer = lightning.Trainer(..., callbacks=[MfuCallback()])

Run the program with `mfu run`. Each training batch becomes a `step` region, and the newest MFU is logged with the module.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    from pytorch_lightning import Callback  # type: ignore[no-redef]

from ._region import Region, region
from ._run_dir import latest


def shape_of(batch: Any) -> Dict[str, int]:
    """`batch` and `seq_len` of a batch with `input_ids` [sequence, token], or that is such a tensor; else nothing."""
    ids = batch.get("input_ids") if hasattr(batch, "get") else batch[0] if isinstance(batch, (tuple, list)) and batch else batch
    shape = getattr(ids, "shape", None)
    if shape is None or len(shape) != 2:
        return {}
    return {"batch": int(shape[0]), "seq_len": int(shape[1])}


class MfuCallback(Callback):  # type: ignore[misc]
    """Marks each training batch, from its forward pass to the optimizer, and logs `mfu/step/mfu` and its like.

    shape: what a batch holds, as keywords of mfuinject.region; by default read from its `input_ids`.
    """

    def __init__(self, shape: Callable[[Any], Dict[str, int]] = shape_of, log: bool = True) -> None:
        super().__init__()
        self._shape, self._log = shape, log
        self._open: Optional[Region] = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._close()
        self._open = region("step", **self._shape(batch))
        self._open.__enter__()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._close()
        if self._log and trainer.is_global_zero and trainer.logger is not None and batch_idx % trainer.log_every_n_steps == 0:
            figures = {f"mfu/{name}": value for name, value in latest().items()}
            if figures:
                trainer.logger.log_metrics(figures, step=trainer.global_step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._open.__exit__()
            self._open = None
