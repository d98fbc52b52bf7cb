"""A tracker for Hugging Face Accelerate: MFU beside what the program logs, in every other tracker.

    from mfuinject.accelerate import MfuTracker
    mfu = MfuTracker()
    accelerator = Accelerator(log_with=["tensorboard", mfu])
    mfu.follow(accelerator)
    accelerator.init_trackers("project")
    accelerator.log({"loss": loss}, step=step)      # TensorBoard gets mfu/step/mfu as well

Run the program with `mfu run`, and mark the steps with mfuinject.region, or let the library find them.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

from accelerate.tracking import GeneralTracker, on_main_process

from ._run_dir import latest


class MfuTracker(GeneralTracker):  # type: ignore[misc]
    name = "mfuinject"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self) -> None:
        super().__init__()
        self._accelerator: Optional[Any] = None

    def follow(self, accelerator: Any) -> None:
        """Hands the figures to this accelerator's other trackers, each time the program logs something."""
        self._accelerator = accelerator

    @property
    def tracker(self) -> Dict[str, float]:
        """The newest figures of this process: `{"step/mfu": 0.41, ...}`."""
        return latest()

    def store_init_configuration(self, values: Dict[str, Any]) -> None:
        pass

    @on_main_process  # type: ignore[untyped-decorator]
    def log(self, values: Dict[str, Any], step: Optional[int] = None, **kwargs: Any) -> None:
        figures = {f"mfu/{name}": value for name, value in latest().items()}
        if not figures or self._accelerator is None:
            return
        for tracker in self._accelerator.trackers:
            if tracker is not self:
                tracker.log(figures, step=step)
