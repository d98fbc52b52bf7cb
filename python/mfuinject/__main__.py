"""The command `mfu` of this package: the program takes the interpreter's place."""

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mfu")
    try:
        os.execv(program, ["mfu", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"mfu: {program}: {error.strerror}")


if __name__ == "__main__":
    main()
