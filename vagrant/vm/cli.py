# SPDX-License-Identifier: Apache-2.0
"""The VM lab's command line: arguments in, an image or a guest, a line or JSON out.

Exit codes: `run` and `shell` exit as the command in the guest does, with 124 if it was not done in
time and 125 if the guest never came up or died; otherwise 0 done, 1 the reason and a remedy are
on stderr, 2 wrong usage.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from vagrant.vm import images
from vagrant.vm.build import ensure
from vagrant.vm.distributions import DISTRIBUTIONS, distribution
from vagrant.vm.errors import BuildFailed, VmError
from vagrant.vm.guest import Options, Result, boot, shell
from vagrant.vm.images import Image

_EXAMPLES = """\
examples:
  python -m vagrant.vm build
  python -m vagrant.vm run debian-12 -- uname -r
  python -m vagrant.vm run debian-13 --timeout 900 -- .venv/bin/python -m pytest -m rdma
  python -m vagrant.vm run debian-12 --link wire --index 0 -- ip link &
  python -m vagrant.vm shell debian-12
  python -m vagrant.vm list --json
"""

CONSOLE_LINES = 120
"""Of the console, where the guest made the end; a panic in an interrupt takes as many."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    given, command = _split(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(given, argparse.Namespace(command=command))
    try:
        code: int = options.verb(options)
    except VmError as error:
        _complain(error, as_json=options.json)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return code


def _progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _complain(error: VmError, *, as_json: bool) -> None:
    if isinstance(error, BuildFailed):
        print(error.log, end="", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": error.problem, "remedy": error.remedy}))
    print(f"error: {error.problem}", file=sys.stderr)
    if error.remedy:
        print(f"remedy: {error.remedy}", file=sys.stderr)


# --- commands ----------------------------------------------------------------------------------


def _build(options: argparse.Namespace) -> int:
    names = options.distributions or list(DISTRIBUTIONS)
    built = [ensure(distribution(name), _progress, rebuild=options.force) for name in names]
    if options.json:
        print(json.dumps([_image_values(image) for image in built], indent=1))
    else:
        for image in built:
            print(image.path)
    return 0


def _run(options: argparse.Namespace) -> int:
    image = ensure(distribution(options.distribution), _progress)
    # With --json standard output is the result's alone.
    stdout = sys.stderr.buffer if options.json else sys.stdout.buffer
    result = boot(image, options.command, _options(options),
                  stdout=stdout, stderr=sys.stderr.buffer)  # fmt: skip
    if problem := trouble(result):
        _progress(problem)
    if options.json:
        print(json.dumps(result_values(result), indent=1))
    return result.exit_code


def _shell(options: argparse.Namespace) -> int:
    return shell(ensure(distribution(options.distribution), _progress), _options(options))


def _list(options: argparse.Namespace) -> int:
    rows = [_row(name, images.find(each)) for name, each in DISTRIBUTIONS.items()]
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    for row in rows:
        if row["built"]:
            age = age_text(time.time() - row["built_s"])
            print(f"{row['name']:<11} {row['kernel']:<17} {row['size_mib']:>5} MiB  {age:>7} old")
            print(f"{'':<11} {row['path']}")
        else:
            print(f"{row['name']:<11} not built: python -m vagrant.vm build {row['name']}")
    return 0


# --- what is said ------------------------------------------------------------------------------


def result_values(result: Result) -> dict[str, Any]:
    """Return the JSON object of `run`; what the command printed went to stderr already."""
    values = asdict(result)
    for text in ("stdout", "stderr", "console"):
        del values[text]
    return values


def trouble(result: Result) -> str | None:
    """Return what to say if the guest, not the command, made the end; else None."""
    lines = result.console.splitlines()[-CONSOLE_LINES:]
    shown = "\n  ".join(["; end of its console:", *lines]) if lines else ""
    if not result.came_up:
        return f"the guest never came up, in {result.total_s:.0f} s{shown}"
    if result.timed_out:
        return f"not done in {result.total_s:.0f} s: the guest was killed{shown}"
    if result.died:
        return f"the guest died after {result.total_s:.0f} s{shown}"
    return None


def age_text(seconds: float) -> str:
    """Return an age in the largest unit that gives at least 1."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _row(name: str, image: Image | None) -> dict[str, Any]:
    if image is None:
        return {"name": name, "built": False}
    return {"name": name, "built": True} | _image_values(image)


def _image_values(image: Image) -> dict[str, Any]:
    return {
        "distribution": image.distribution,
        "kernel": image.kernel,
        "own_venv": image.own_venv,
        "size_mib": image.size_bytes >> 20,
        "built_s": image.built_s,
        "build_s": image.build_s,
        "path": str(image.path),
    }


# --- arguments ---------------------------------------------------------------------------------


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    # By hand: what follows the first -- is the guest's, options and further -- included.
    if "--" not in argv:
        return list(argv), []
    at = list(argv).index("--")
    return list(argv[:at]), list(argv[at + 1 :])


def _options(options: argparse.Namespace) -> Options:
    return Options(
        timeout_s=options.timeout,
        memory_mib=options.memory,
        cpus=options.cpus,
        environment=dict(options.env),
        accel=options.accel,
        systemd=options.systemd,
        link=options.link,
        index=options.index,
    )


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vagrant.vm",
        description="Debian guests in QEMU, with the tree in them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def add(
        verb: str, text: str, example: str, function: Callable[..., int]
    ) -> argparse.ArgumentParser:
        added = verbs.add_parser(
            verb,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=f"example:\n  python -m vagrant.vm {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(verb=function)
        added.add_argument("--json", action="store_true", help="print JSON instead of text")
        return added

    build = add("build", "build the images that are missing", "build debian-12", _build)
    build.add_argument("distributions", nargs="*", metavar="DISTRIBUTION", help="(default: all)")
    build.add_argument("--force", action="store_true", help="even if it is there")
    run = add("run", "run a command in a pristine guest", "run debian-12 -- uname -r", _run)
    _guest_arguments(run)
    run.usage = f"{run.format_usage().removeprefix('usage: ').rstrip()} -- COMMAND ..."
    _guest_arguments(add("shell", "open a shell in a pristine guest", "shell debian-13", _shell))
    add("list", "show the distributions and their images", "list --json", _list)
    return parser


def _guest_arguments(parser: argparse.ArgumentParser) -> None:
    default = Options()
    parser.add_argument("distribution", metavar="DISTRIBUTION", help=", ".join(DISTRIBUTIONS))
    parser.add_argument("--timeout", type=_positive, default=default.timeout_s, metavar="S",
                        help="seconds for boot and command (default: %(default)g)")  # fmt: skip
    parser.add_argument("--memory", type=_positive, default=default.memory_mib, metavar="MIB",
                        help="(default: %(default)s)")  # fmt: skip
    parser.add_argument("--cpus", type=_positive, default=default.cpus, metavar="N",
                        help="(default: %(default)s)")  # fmt: skip
    parser.add_argument("--env", type=_assignment, action="append", default=[], metavar="K=V",
                        help="of the command; may be repeated")  # fmt: skip
    parser.add_argument("--accel", choices=("auto", "kvm", "tcg"), default=default.accel,
                        help="(default: KVM where it can work)")  # fmt: skip
    parser.add_argument("--systemd", action="store_true", help="as process 1")
    parser.add_argument("--link", metavar="NAME", help="a cable to the guest with the same NAME")
    parser.add_argument("--index", type=int, choices=(0, 1), default=default.index,
                        help="which end of the cable (default: %(default)s)")  # fmt: skip
