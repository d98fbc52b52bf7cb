"""Megatron-LM's pretrain_gpt.py, with `step` around the function that is one step of it.

    MEGATRON=/path/to/Megatron-LM examples/megatron/pretrain.sh

Megatron's own ranges (--profile --nvtx-ranges) name parts of a layer and of the schedule, and none of them is a whole step.
"""

import argparse
import os
import runpy
import sys


def name_steps(training, region):
    """Puts `region` around megatron.training.training.train_step: all micro-batches, and the optimizer."""
    training.train_step = region(training.train_step)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="Every other word goes to pretrain_gpt.py.")
    parser.parse_known_args()
    folder = os.environ.get("MEGATRON")
    if not folder:
        sys.exit("pretrain.py: expected the folder of Megatron-LM in MEGATRON")
    sys.path.insert(0, folder)
    import mfuinject
    from megatron.training import training

    name_steps(training, mfuinject.region("step"))
    sys.argv[0] = os.path.join(folder, "pretrain_gpt.py")
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
