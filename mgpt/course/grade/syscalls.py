"""System calls that Python does not offer, over the C library alone (Linux).

Constants are those of the kernel's headers: sched.h, mount.h, landlock.h, seccomp.h, filter.h, capability.h.
"""

import ctypes
import os
import platform
import struct

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x20000, 0x8000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
ANY_NAMESPACE = 0x7E020000  # every CLONE_NEW… flag that clone() knows
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
SECCOMP_ALLOW, SECCOMP_KILL_PROCESS, SECCOMP_ERRNO = 0x7FFF0000, 0x80000000, 0x50000
EPERM, EACCES, ENOSYS, AF_UNIX = 1, 13, 38, 1

# Names refused to a learner's process: other processes, mounts, namespaces, the kernel itself.
DENIED = {
    "x86_64": {
        "ptrace": 101, "syslog": 103, "personality": 135, "pivot_root": 155, "adjtimex": 159, "chroot": 161,
        "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168,
        "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175,
        "delete_module": 176, "quotactl": 179, "clock_settime": 227, "kexec_load": 246, "add_key": 248,
        "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311,
        "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323},
    "aarch64": {
        "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "quotactl": 60, "acct": 89,
        "personality": 92, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106,
        "clock_settime": 112, "syslog": 116, "ptrace": 117, "reboot": 142, "sethostname": 161,
        "setdomainname": 162, "settimeofday": 170, "adjtimex": 171, "add_key": 217, "request_key": 218,
        "keyctl": 219, "swapon": 224, "swapoff": 225, "perf_event_open": 241, "name_to_handle_at": 264,
        "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271,
        "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294}}
DENIED_EVERYWHERE = {  # one number on every machine
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "process_mrelease": 448}
SPECIAL = {"x86_64": {"socket": 41, "clone": 56, "kill": 62, "tkill": 200, "tgkill": 234},
           "aarch64": {"socket": 198, "clone": 220, "kill": 129, "tkill": 130, "tgkill": 131}}
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE3 = 435

LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LL_EXECUTE, LL_WRITE_FILE, LL_READ_FILE, LL_READ_DIR = 1, 2, 4, 8

_libc = ctypes.CDLL(None, use_errno=True)


def _done(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags):
    """New namespaces for this process (for CLONE_NEWPID: for its children)."""
    _done(_libc.unshare(flags), "unshare")


def mount(source, target, kind=None, flags=0, options=None):
    """mount(2); text or None each."""
    given = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _done(_libc.mount(*given, ctypes.c_ulong(flags), None if options is None else options.encode()), f"mount {target}")


def enter_root(folder):
    """Make `folder` (a mount point) the root of this mount namespace and let go of the old one."""
    os.chdir(folder)
    number = {"x86_64": 155, "aarch64": 41}[platform.machine()]
    _done(_libc.syscall(number, b".", b"."), "pivot_root")
    _done(_libc.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")


def prctl(option, value, pointer=None):
    _done(_libc.prctl(option, ctypes.c_ulong(value), pointer, ctypes.c_ulong(0), ctypes.c_ulong(0)), "prctl")


def drop_capabilities():
    """Give up every capability of this process (uid 0 of a user namespace has them all)."""
    header = struct.pack("II", 0x20080522, 0)
    _done(_libc.capset(header, bytes(24)), "capset")


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def landlock_ruleset(readable, listable, devices, writable):
    """(descriptor, what it covers) of a Landlock ruleset: files to read, folders to list, devices, folders to write.

    OSError where the kernel has no Landlock.
    """
    abi = _done(_libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1)), "landlock")
    files = (1 << 13) - 1 | (abi >= 2) << 13 | (abi >= 3) << 14 | (abi >= 5) << 15
    attributes = _Ruleset(files, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _done(_libc.syscall(LANDLOCK_CREATE, ctypes.byref(attributes), ctypes.c_size_t(size),
                                  ctypes.c_uint32(0)), "landlock")
    for paths, rights in ((readable, LL_EXECUTE | LL_READ_FILE | LL_READ_DIR), (listable, LL_READ_DIR),
                          (devices, LL_READ_FILE | LL_WRITE_FILE), (writable, files)):
        for path in paths:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = rights if os.path.isdir(path) else rights & ~LL_READ_DIR
            rule = _Beneath(allowed, descriptor)
            _done(_libc.syscall(LANDLOCK_ADD, ruleset, 1, ctypes.byref(rule), ctypes.c_uint32(0)), f"landlock {path}")
            os.close(descriptor)
    return ruleset, "files" + (", TCP" if abi >= 4 else "") + (", signals" if abi >= 6 else "")


def landlock_restrict(ruleset):
    _done(_libc.syscall(LANDLOCK_RESTRICT, ruleset, ctypes.c_uint32(0)), "landlock")


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def seccomp_program(parent):
    """The filter as bytes: denied calls fail with EPERM, sockets are local, a signal to `parent` ends the caller.

    OSError on a machine whose call numbers are not in the tables.
    """
    machine = platform.machine()
    if machine not in DENIED:
        raise OSError(ENOSYS, f"no table of system calls for {machine}")
    special, program = SPECIAL[machine], []

    def step(code, value, if_true=0, if_false=0):
        program.append(struct.pack("HBBI", code, if_true, if_false, value & 0xFFFFFFFF))

    LOAD, EQUAL, GREATER, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
    number, argument = 0, 16  # offsets in struct seccomp_data; the lower half of argument 0
    step(LOAD, 4)
    step(EQUAL, AUDIT_ARCH[machine], 1, 0)
    step(RETURN, SECCOMP_KILL_PROCESS)
    step(LOAD, number)
    step(GREATER, 0x40000000, 0, 1)  # the x32 calls of x86_64
    step(RETURN, SECCOMP_ERRNO | ENOSYS)
    for call in sorted({*DENIED[machine].values(), *DENIED_EVERYWHERE.values()}):
        step(EQUAL, call, 0, 1)
        step(RETURN, SECCOMP_ERRNO | EPERM)
    step(EQUAL, CLONE3, 0, 1)
    step(RETURN, SECCOMP_ERRNO | ENOSYS)  # its flags lie in memory: the C library falls back to clone
    everybody = 0xFFFFFFFF  # kill(-1)
    for name, compare, value, hit, miss in (
            ("socket", EQUAL, AF_UNIX, SECCOMP_ALLOW, SECCOMP_ERRNO | EACCES),
            ("clone", ANY_BIT, ANY_NAMESPACE, SECCOMP_ERRNO | EPERM, SECCOMP_ALLOW),
            ("kill", EQUAL, everybody, SECCOMP_KILL_PROCESS, None),
            *((name, EQUAL, parent, SECCOMP_KILL_PROCESS, None) for name in ("kill", "tkill", "tgkill"))):
        step(EQUAL, special[name], 0, 4)
        step(LOAD, argument)
        step(compare, value, 0, 1)
        step(RETURN, hit)
        if miss is None:
            step(LOAD, number)  # go on with the next rule
        else:
            step(RETURN, miss)
    step(RETURN, SECCOMP_ALLOW)
    return b"".join(program)


def seccomp(program):
    """Put a filter over this process and all it starts; no_new_privs must be set."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = _Program(len(program) // 8, ctypes.addressof(buffer))
    prctl(PR_SET_SECCOMP, 2, ctypes.byref(header))
