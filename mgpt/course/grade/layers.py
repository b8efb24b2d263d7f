"""The names and limits of the sandbox's layers; nothing here needs Linux."""

from dataclasses import dataclass

LAYERS = ("session", "rlimits", "pid", "net", "ipc", "mount", "landlock", "seccomp", "uid")
# What of the system a learner's process may read, beside this Python and its packages.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache",
          "/etc/localtime", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/fonts",
          "/etc/alternatives", "/etc/mime.types")


@dataclass(frozen=True)
class Limits:
    """What one submission may use: memory and file sizes in MiB, CPU in seconds, counts."""

    memory: int = 1024
    cpu: int = 300
    file_size: int = 512
    files: int = 256
    processes: int = 128
