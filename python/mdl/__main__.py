"""`python -m mdl`: runs the command that is installed with this package."""

import os
import sys
import sysconfig
from pathlib import Path


def command() -> Path:
    """The program `mdl` of this installation: beside the package, or where pip puts scripts, alone or for a user."""
    name = "mdl" + (sysconfig.get_config_var("EXE") or "")
    user = sysconfig.get_preferred_scheme("user")
    package = Path(__file__).resolve().parent
    # A package from elsewhere (PYTHONPATH) has its own program: the interpreter's may be of another version.
    places: list[str | Path] = [
        # pip install --target DIR, and --prefix DIR: DIR/lib/pythonX.Y/site-packages/mdl.
        package.parent / "bin",
        *(above / "bin" for above in package.parents[3:4]),
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", user),
    ]
    for place in places:
        if (found := Path(place) / name).is_file():
            return found
    raise SystemExit(f"mdl: the command is not installed beside the package ({package}); install the wheel again")


if __name__ == "__main__":
    path = str(command())
    os.execv(path, [path, *sys.argv[1:]])
