"""The layers around a learner's process, each tried at the start and reported: in force, or why not (Linux).

`House` is built once, in the zygote; `confine` closes the door behind each forked child.
"""

import fcntl
import os
import resource
import stat
from dataclasses import dataclass, field
from pathlib import Path

from mgpt.course.grade import syscalls
from mgpt.course.grade.layers import Limits

MIB = 2**20
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
UNPRIVILEGED = 65534


@dataclass
class House:
    """The zygote's side: `layers` maps a layer's name to None (in force) or to the reason why it is missing."""

    box: str
    readable: list
    listable: list
    limits: Limits
    held: int = 0
    layers: dict = field(default_factory=dict)
    uid: int | None = None
    ruleset: int | None = None
    in_user_namespace: bool = False

    def attempt(self, layer, build):
        """Try to put a layer in force; the reason is kept where it cannot be."""
        try:
            build()
            self.layers.setdefault(layer, None)
        except (OSError, ValueError, KeyError, AttributeError) as error:
            self.layers[layer] = str(error.strerror or error) if isinstance(error, OSError) else str(error)
        return self.layers[layer] is None

    def has(self, layer):
        return layer in self.layers and self.layers[layer] is None


def open_namespaces(house):
    """Leave the caller's namespaces: first as root, else by way of a user namespace.  The caller forks next."""
    uid, gid = os.getuid(), os.getgid()
    wanted = {"mount": syscalls.CLONE_NEWNS, "net": syscalls.CLONE_NEWNET, "pid": syscalls.CLONE_NEWPID,
              "ipc": syscalls.CLONE_NEWIPC}
    try:
        syscalls.unshare(syscalls.CLONE_NEWNS)
    except OSError:
        try:
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
            house.in_user_namespace = True
        except OSError:
            pass
    for layer, flag in wanted.items():
        house.attempt(layer, lambda flag=flag: syscalls.unshare(flag))


def furnish(house, empty):
    """The parts that every child shares: a root of its own, the Landlock rules, the uid.  `empty`: a free folder."""
    if house.has("mount") and not house.attempt("mount", lambda: _own_root(house, empty)):
        os.chdir("/")
    if os.getuid() == 0 and not house.in_user_namespace:
        house.uid = 100_000 + os.getppid() if _can_be(100_000 + os.getppid()) else UNPRIVILEGED
        os.chown(house.box, house.uid, house.uid)
        os.chmod(house.box, 0o711)
    else:
        house.layers["uid"] = "not started as root: the learner's code runs as the user who grades"

    def rules():
        ruleset, _ = syscalls.landlock_ruleset(
            [path for path in house.readable if os.path.exists(path)],
            [path for path in house.listable if os.path.isdir(path)],
            [path for path in DEVICES if os.path.exists(path)], [house.box])
        house.ruleset = fcntl.fcntl(ruleset, fcntl.F_DUPFD_CLOEXEC, 10)  # out of the way of the child's channel, 3
        os.close(ruleset)

    house.attempt("landlock", rules)
    house.attempt("seccomp", lambda: syscalls.seccomp_program(1))


def _can_be(uid):
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(uid, uid, uid)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _own_root(house, empty):
    """A root in which only what may be read is mounted, read-only; the box is the one place to write."""
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("tmpfs", empty, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "size=4m,mode=755")
    shown = []
    for path in sorted({*house.readable, *DEVICES, *house.listable}, key=lambda path: (path.count("/"), path)):
        if not os.path.lexists(path) or any(path.startswith(f"{above}/") for above in shown):
            continue
        target = Path(empty + path)
        if path in house.listable and path not in house.readable:
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.islink(path):
            target.symlink_to(os.readlink(path))
            continue
        target.mkdir(exist_ok=True) if os.path.isdir(path) else target.touch()
        syscalls.mount(path, str(target), None, syscalls.MS_BIND | syscalls.MS_REC)
        kept = os.statvfs(path).f_flag & (2 | 4 | 8 | 1024 | 2048)  # flags that a user namespace may not take off
        device = stat.S_ISCHR(os.stat(path).st_mode)
        extra = 0 if device else syscalls.MS_RDONLY
        syscalls.mount(None, str(target), None,
                       syscalls.MS_BIND | syscalls.MS_REMOUNT | extra | kept | syscalls.MS_NOSUID)
        shown.append(path)
    Path(empty + house.box).mkdir(parents=True, exist_ok=True)
    Path(empty + "/tmp").mkdir(exist_ok=True)
    syscalls.enter_root(empty)


def confine(house, parent):
    """Close this process in: called in the forked child, before any of the learner's code.

    LayerFailed names the layer that could not be put in force; the child then ends.
    """
    for layer, close in (("session", os.setsid), ("ipc", _own_ipc), ("mount", _own_box), ("rlimits", set_limits),
                         ("uid", _drop_privileges), ("landlock", _restrict), ("seccomp", _filter)):
        if house.layers.get(layer) is None:
            try:
                close() if layer == "session" else close(house, parent)
            except (OSError, ValueError) as error:
                raise LayerFailed(layer, str(getattr(error, "strerror", None) or error)) from None
        if layer == "mount":
            _move_in(house)


class LayerFailed(Exception):
    """args: the layer and the reason."""


def _own_ipc(house, parent):
    syscalls.unshare(syscalls.CLONE_NEWIPC)


def _own_box(house, parent):
    syscalls.unshare(syscalls.CLONE_NEWNS)
    owner = "" if house.uid is None else f",uid={house.uid},gid={house.uid}"
    syscalls.mount("tmpfs", house.box, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV,
                   f"size={house.limits.file_size}m,nr_inodes=20000,mode=700{owner}")


def _move_in(house):
    home = f"{house.box}/home"
    os.mkdir(home, 0o700)
    if house.uid is not None:
        os.chown(home, house.uid, house.uid)
    os.environ.update(HOME=home, TMPDIR=home, IPYTHONDIR=f"{home}/.ipython", MPLCONFIGDIR=f"{home}/.mpl")
    os.chdir(home)
    if house.uid is None and (os.geteuid() == 0 or house.in_user_namespace):
        syscalls.drop_capabilities()  # the mounts are made, and no other uid will take them away


def _drop_privileges(house, parent):
    if house.uid is not None:
        os.setgroups([])
        os.setresgid(house.uid, house.uid, house.uid)
        os.setresuid(house.uid, house.uid, house.uid)


def _restrict(house, parent):
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.landlock_restrict(house.ruleset)


def _filter(house, parent):
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.seccomp(syscalls.seccomp_program(parent))


def set_limits(house, parent):
    """rlimits of this process; the address space counts from what it holds now."""
    limits = house.limits
    wanted = {"CPU": limits.cpu, "FSIZE": limits.file_size * MIB, "NOFILE": limits.files, "CORE": 0,
              "AS": house.held + limits.memory * MIB}
    if house.uid is not None or house.in_user_namespace:  # else other processes of this uid count as well
        wanted["NPROC"] = limits.processes
    for name, value in wanted.items():
        which = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def address_space():
    """Bytes of address space this process holds; half a GiB where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 2**29
