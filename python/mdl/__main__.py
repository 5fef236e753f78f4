"""`python -m mdl`: runs the command that is installed with this package."""

import os
import sys
import sysconfig
from pathlib import Path


def command() -> Path:
    """The program `mdl` of this installation: where pip puts scripts, alone, for one user, or with `--target`."""
    name = "mdl" + (sysconfig.get_config_var("EXE") or "")
    user = sysconfig.get_preferred_scheme("user")
    package = Path(__file__).resolve().parent
    places = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", user),
        # pip install --target DIR, and --prefix DIR: DIR/lib/pythonX.Y/site-packages/mdl.
        package.parent / "bin",
        package.parents[3] / "bin" if len(package.parents) > 3 else None,
    ]
    for place in places:
        if place and (found := Path(place) / name).is_file():
            return found
    raise SystemExit(f"mdl: the command is not installed beside the package ({package}); install the wheel again")


if __name__ == "__main__":
    path = str(command())
    os.execv(path, [path, *sys.argv[1:]])
