"""What can go wrong between a reader and the collector, and who must act.

    ClientError                1  base: a sentence, perhaps a hint, and the exit code of the command
    ├── WindowError            2  the reader: the time range cannot be read
    ├── AddressError           2  the reader: the collector's address is malformed, or takes joining first
    ├── AccessError            1  the reader: they are not let in, any more or yet, or the collector is not theirs
    ├── RefusedError           2  the reader: the collector does not know the target, region or metric asked for
    ├── AmbiguousError         2  the reader: a short name may mean several things
    ├── BaselineError          2  the reader: no region to compare with was named, and the plan has none
    ├── ConfigurationError     2  the reader: the configuration file or a context's name is wrong
    ├── FieldError             2  the reader: --fields names a field that the answer does not have
    ├── UnreachableError       3  whoever runs the collector: nothing answers there
    ├── InsufficientError      4  time, or whoever runs the agents: too few data to say anything
    ├── SlowError              1  the reader: ask for less, or wait longer
    ├── FileError              1  the reader: a file to be written is there already, or cannot be written
    ├── MissingExtraError      1  the reader: something that is not installed here is needed
    ├── DemoError              1  whoever runs the demo: a part of it did not start, or its folder is taken
    └── CollectorError         1  whoever runs the collector: it failed, or speaks another version

An `InsufficientError` is raised after the answer has been written: it explains an answer, it does not replace it.
"""

from isochrone_wire.errors import IsochroneError


class ClientError(IsochroneError):
    """Root of the tree."""


class WindowError(ClientError):
    """A time range that cannot be read. Act: the reader."""

    exit_code = 2


class AddressError(ClientError):
    """A collector address that is malformed or takes joining first. Act: the reader."""

    exit_code = 2


class AccessError(ClientError):
    """The reader is not let in, or what answers is not the collector they joined. Act: the reader, by joining."""


class RefusedError(ClientError):
    """The collector does not know what was asked for, and says so. Act: the reader."""

    exit_code = 2


class AmbiguousError(ClientError):
    """A short name that several regions or targets may be meant by. Act: the reader, by writing more of it."""

    exit_code = 2


class BaselineError(ClientError):
    """There is no region to compare with. Act: the reader, by naming one."""

    exit_code = 2


class ConfigurationError(ClientError):
    """The configuration file, or the name of a context, is wrong. Act: the reader."""

    exit_code = 2


class FieldError(ClientError):
    """A field that the answer does not have. Act: the reader, by naming another."""

    exit_code = 2


class UnreachableError(ClientError):
    """Nothing answers at the collector's address. Act: whoever runs the collector."""

    exit_code = 3


class InsufficientError(ClientError):
    """There are too few data to say anything. Act: wait, or look after the agents."""

    exit_code = 4


class SlowError(ClientError):
    """The collector did not answer in time. Act: the reader, by asking for less or waiting longer."""


class FileError(ClientError):
    """A file to be written is there already, or cannot be written. Act: the reader, by naming another."""


class MissingExtraError(ClientError):
    """What was asked for takes a package that is not installed. Act: the reader, by installing the extra named."""


class CollectorError(ClientError):
    """The collector failed, or speaks a version this client does not know. Act: whoever runs the collector."""


class DemoError(ClientError):
    """A part of the demo did not start or did not last. Act: whoever runs it; the sentence ends with its log."""
