"""The progress of an installation, read from what pip prints."""

from tools.install_progress import Progress

OUTPUT = """\
Obtaining file:///home/ida/isochrone
  Installing build dependencies: started
  Installing build dependencies: finished with status 'done'
Collecting click>=8.1 (from isochrone==0.1.0)
  Downloading click-8.1.8-py3-none-any.whl (98 kB)
Collecting numpy>=2.0 (from isochrone==0.1.0)
  Downloading numpy-2.2.6-cp311-cp311-manylinux_2_17_x86_64.whl (16.8 MB)
Collecting typing-extensions (from alembic)
  Using cached typing_extensions-4.13.2-py3-none-any.whl.metadata (3.0 kB)
Collecting typing_extensions (from grpcio)
  Downloading typing_extensions-4.13.2-py3-none-any.whl (1.25 MB)
Installing collected packages: typing-extensions, numpy, click, isochrone
Successfully installed click-8.1.8 isochrone-0.1.0 numpy-2.2.6 typing-extensions-4.13.2
""".splitlines(keepends=True)


def test_packages_are_counted_while_pip_looks_for_them() -> None:
    """Until pip installs, the progress is the packages found, each once, and the megabytes of their files."""
    progress = Progress()
    progress.read(OUTPUT[:3])
    assert progress.describe(0) == "starting"
    progress.read(OUTPUT[3:11])
    assert progress.describe(0) == "packages: 3 found, 18 MB to download"


def test_packages_are_counted_while_pip_installs_them() -> None:
    """As soon as pip lists what it installs, the progress is the packages in place of those."""
    progress = Progress()
    progress.read(OUTPUT)
    assert progress.describe(2) == "4 packages … 2/4"
    assert progress.describe(9) == "4 packages … 4/4"


def test_the_end_of_the_output_is_kept() -> None:
    """If pip fails, the last thirty lines tell why."""
    progress = Progress()
    progress.read([f"{number}\n" for number in range(100)] + ["ERROR: no matching distribution\n"])
    assert len(progress.tail) <= 31
    assert progress.tail[-1].startswith("ERROR")
