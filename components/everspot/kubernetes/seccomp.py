"""The seccomp profile of pods whose jobs have an image of their own, and the user data that puts it on each node.

A job's container is a user and a mount namespace that an ordinary user makes (`everspot_train.prepare.enter`). The
profile `RuntimeDefault` of containerd allows the calls for it only with CAP_SYS_ADMIN and CAP_SYS_CHROOT
(contrib/seccomp/seccomp_default.go). This profile allows these calls, with the arguments that a container needs, and no
capability: the pod stays within the standard `restricted` (Kubernetes, "Pod Security Standards").
"""

import hashlib
import json
from typing import Any

from everspot_clouds.kubernetes import rules

_Rule = dict[str, Any]

_ALLOWED = """
    accept accept4 access adjtimex alarm arch_prctl bind brk cachestat capget capset chdir chmod chown clock_adjtime
    clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3
    epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd
    eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fanotify_mark fchdir fchmod
    fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat
    fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat get_robust_list
    get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid
    getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname
    getsockopt gettid gettimeofday getuid getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch
    io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit ioctl ioprio_get ioprio_set kill
    landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen listxattr
    llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack membarrier memfd_create memfd_secret
    mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect mq_getsetattr mq_notify mq_open
    mq_timedreceive mq_timedsend mq_unlink mremap msgctl msgget msgrcv msgsnd msync munlock munlockall munmap
    name_to_handle_at nanosleep newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2
    pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64 process_mrelease
    process_vm_readv process_vm_writev pselect6 ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat
    readv recvfrom recvmmsg recvmsg remap_file_pages removexattr rename renameat renameat2 restart_syscall rmdir
    rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
    sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler
    sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list
    set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid
    setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr shmat shmctl shmdt shmget shutdown
    sigaltstack signalfd signalfd4 socketpair splice stat statfs statx symlink symlinkat sync sync_file_range syncfs
    sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
    timerfd_gettime timerfd_settime times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork
    vmsplice wait4 waitid write writev
"""
"""What containerd 1.7 allows to a container without capabilities on Linux 4.8 and newer, without the calls of other
processors and those of io_uring, which evade the filter (io_uring(7))."""

_NEWNS, _NEWUSER = 0x20000, 0x10000000
_NAMESPACES = 0x7E020000
"""All CLONE_NEW… flags that clone(2) takes (linux/sched.h)."""
_BIND, _REC, _PRIVATE = 4096, 16384, 1 << 18  # linux/mount.h
_ENOSYS = 38
_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: those of a job's unit on an instance."""
_PERSONALITIES = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)
"""As containerd allows them. The last one only asks."""


def _allow(name: str, *conditions: tuple[int, int, int | None]) -> _Rule:
    """Return the rule that allows a call. Each condition is an argument's index, its value, and the mask of the bits
    that count; None for all."""
    arguments = [
        {"index": index, "op": "SCMP_CMP_EQ", "value": value}
        if mask is None
        else {"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": value}
        for index, value, mask in conditions
    ]
    return {"names": [name], "action": "SCMP_ACT_ALLOW", **({"args": arguments} if arguments else {})}


def build_profile() -> dict[str, Any]:
    """Return the profile (OCI runtime specification, config-linux.md, Seccomp)."""
    container = [
        # A user and a mount namespace, and no other, by unshare(2) alone.
        _allow("unshare", (0, 0, 0xFFFFFFFF & ~(_NEWNS | _NEWUSER))),
        # Folders are shown at other paths. No file system is mounted: mount(2) with MS_BIND mounts none.
        _allow("mount", (3, _BIND, _BIND)),
        _allow("mount", (3, _REC | _PRIVATE, None)),
        _allow("chroot"),
    ]
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [
            {"names": _ALLOWED.split(), "action": "SCMP_ACT_ALLOW"},
            *(_allow("socket", (0, family, None)) for family in _FAMILIES),
            *(_allow("personality", (0, value, None)) for value in _PERSONALITIES),
            _allow("clone", (0, 0, _NAMESPACES)),
            # Its flags are in memory, where no filter sees them; the C library falls back on clone(2).
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
            *container,
        ],
    }


def _text() -> str:
    return json.dumps(build_profile(), separators=(",", ":"))


def profile_version() -> str:
    """Return the version of the profile, by which nodes are chosen that have it."""
    return hashlib.sha256(_text().encode()).hexdigest()[:10]


def profile_name() -> str:
    """Return the path of the profile below the kubelet's folder of profiles."""
    return f"everspot/{profile_version()}.json"


def build_user_data() -> str:
    """Return the user data of a node. cloud-init writes the profile before the kubelet starts (amazon-eks-ami,
    nodeadm-run.service), and Karpenter adds its own part (bootstrap/nodeadm.go)."""
    file = {"path": f"{rules.SECCOMP_FOLDER}/{profile_name()}", "permissions": "0644", "content": _text()}
    lines = (
        "MIME-Version: 1.0",
        'Content-Type: multipart/mixed; boundary="//"',
        "",
        "--//",
        "Content-Type: text/cloud-config",
        "",
        "#cloud-config",
        json.dumps({"write_files": [file]}),
        "--//--",
        "",
    )
    return "\n".join(lines)
