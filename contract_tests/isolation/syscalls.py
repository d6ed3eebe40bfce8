"""A program that asks the kernel for what no engine needs, and says what it was answered."""

ASKING = """
import ctypes, errno, json, mmap, os, platform, signal, socket, sys
refused, lacking, newest = json.loads(sys.argv[1])
kernel = ctypes.CDLL(None, use_errno=True)
def call(number, *words):
    ctypes.set_errno(0)
    # Six in all: what stands in the others' registers is not looked at.
    given = [ctypes.c_long(each) for each in (*words, 0, 0, 0, 0, 0, 0)[:6]]
    return "done" if kernel.syscall(ctypes.c_long(number), *given) >= 0 else ctypes.get_errno()
def name(answer):
    return answer if answer == "done" else errno.errorcode.get(answer, str(answer))
def ended_by(act):
    pid = os.fork()
    if pid == 0:
        act()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return signal.Signals(status & 127).name if status & 127 else "went on"
def apart(act):
    # What changes the process is done by another.
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, name(act()).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    return os.read(reading, 100).decode()
def family(number):
    try:
        socket.socket(number, socket.SOCK_DGRAM).close()
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
x86 = platform.machine() == "x86_64"
NEWUSER, NEWNET = 0x10000000, 0x40000000
clone = 56 if x86 else 220
found = {
    # Nothing lies at any of these addresses, nor is it a file, a process or a key.
    "refused": {each: apart(lambda: call(number, -1, -1, -1)) for each, number in refused.items()},
    "lacking": {each: apart(lambda: call(number, 0, 0)) for each, number in lacking.items()},
    "new": name(call(newest + 1, -1, -1)),
    "x32": name(call(0x40000000 + 39)),
    "trace": apart(lambda: call(101 if x86 else 117, 0)),
    "personality": name(call(135 if x86 else 92, 0xFFFFFFFF)),
    "key": name(call(250 if x86 else 219, 0, -3, 0)),
    "user namespace": apart(lambda: call(272 if x86 else 97, NEWUSER)),
    "clone": apart(lambda: call(clone, NEWUSER | NEWNET | signal.SIGCHLD)),
    "terminal": name(call(16 if x86 else 29, 0, 0x5412, 0)),
    "terminal, with more bits": name(call(16 if x86 else 29, 0, 0x5412 | 1 << 40, 0)),
    "unix": family(socket.AF_UNIX),
    **{f"family {each}": family(each) for each in (2, 10, 16, 17, 21, 29, 30, 38, 40, 44)},
}
if x86:
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3")  # getpid, as a 32-bit program asks for it
    at = ctypes.addressof(ctypes.c_char.from_buffer(code))
    found["32 bits"] = ended_by(ctypes.CFUNCTYPE(ctypes.c_int)(at))
print(json.dumps(found), flush=True)
"""
