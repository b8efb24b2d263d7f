"""Files of traces -> arguments of RequestTrace."""


def read_records(path):
    """Pairs (place in the file, arguments of RequestTrace)."""
    raise ValueError(f"{path}: no reader yet")
