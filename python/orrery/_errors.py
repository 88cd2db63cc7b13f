"""The three ways in which Orrery says "no", with the texts of the command line."""


class Error(Exception):
    """Any of the three."""


class UserError(Error, ValueError):
    """What was asked is wrong: a file, a name, a value. The command line ends with exit code 2."""


class NoAnswer(Error):
    """The question was sound and the answer is no: nothing fits, no route, outside the tolerance. Exit code 3."""


class InternalError(Error, RuntimeError):
    """A fault of Orrery, of a library or of the machine; a simulating process that died. Exit code 1."""
