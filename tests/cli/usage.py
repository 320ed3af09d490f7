#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong command lines, and help, which man pages agree with. usage: usage.py TESSERA MAN_FOLDER"""
import os
import re
import signal
import subprocess
import sys

from harness import TESSERA, check, done, equal, tessera

COMMANDS = ["box", "flight", "info", "launch", "plan", "run", "trace"]

out, err = tessera(code=2)
check("usage: tessera COMMAND" in err and out == "", "no command: usage on stderr")
out, err = tessera("--version")
check(out.startswith("tessera "), "version")
out, err = tessera("bxo", code=2)
check("there is no command 'bxo'; did you mean 'box'?" in err, err)
out, err = tessera("frobnicate", code=2)
check("did you mean" not in err, "nothing is near to frobnicate: " + err)
for word, near in (("foo", None), ("car", None), ("rnu", "run"), ("bx", "box"), ("lanuhc", "launch")):
    out, err = tessera(word, code=2)
    expected = f"tessera: there is no command '{word}'"
    expected += f"; did you mean '{near}'?" if near else ""
    equal(err.split("\n")[0], expected, f"the command {word}")

for words in [["--help"]] + [[c, "--help"] for c in COMMANDS]:
    out, err = tessera(*words)
    lines = out.split("\n")
    what = " ".join(words)
    equal(err, "", what + " on stderr")
    check(len(lines) <= 24 and lines[-1] == "", f"{what}: {len(lines)} lines")
    check(max(map(len, lines)) <= 80, f"{what}: {max(lines, key=len)!r} is longer than 80 columns")
    check("\033" not in out, f"{what}: colour in a file")
    check(all(line == line.rstrip() for line in lines), f"{what}: blanks at the end of a line")

# Descriptions of options stand in one column, behind the longest option of at most 36 characters.
for c in COMMANDS:
    rows = re.findall(r"^(  (-\S.*?)  +)(?=\S)", tessera(c, "--help")[0], re.M)
    check(len(rows) >= 3, f"{c}: options: {rows}")
    widths = [len(left) for _, left in rows if len(left) <= 36]
    column = max(widths + [22])
    equal([len(all_of_it) for all_of_it, _ in rows], [4 + max(column, len(left)) for _, left in rows],
          f"{c} --help: where what options mean begins")

check("\n  -t, --to END            where it shall be; a signature alone: on the\n"
      "                          placement of --from\n" in tessera("box", "--help")[0], "two lines")

out, _ = tessera("--help")
for c in COMMANDS:
    check(f"\n  {c} " in out, f"{c} is not in the list of commands")
    check(f"usage: tessera {c} " in tessera(c, "--help")[0], f"{c}: usage")

for args, text in [
    (["box", "--shpae", "3"], "there is no option --shpae; did you mean --shape?"),
    (["box", "--zero=1"], "there is no option --zero; did you mean --zero-latency?"),
    (["box", "--quux"], "there is no option --quux\n"),
    (["box", "--sh"], "there is no option --sh; did you mean --shape?"),
    (["box", "--o"], "there is no option --o; did you mean --to?"),
    (["box", "--xo"], "there is no option --xo; did you mean --to?"),
    (["box", "--xx"], "there is no option --xx\n"),
    (["box", "--rxxks"], "there is no option --rxxks; did you mean --ranks?"),
    (["box", "--xxxks"], "there is no option --xxxks\n"),
    (["box", "--xxxo-latency"], "there is no option --xxxo-latency; did you mean --zero-latency?"),
    (["box", "--xxxx-latency"], "there is no option --xxxx-latency\n"),
    (["box", "--" + "x" * 70 + "=3"], "there is no option --" + "x" * 70 + "\n"),
    (["box", "-q"], "there is no option -q\n"),
    (["box", "--run=1"], "--run takes no value"),
    (["box", "--shape"], "a value is missing after --shape"),
    (["box", "--shape", "3"], "--from is missing"),
    (["box", "8,6"], "there is no use for '8,6'"),
    (["box", "-n", "0"], "-n needs a number of ranks, 1 to 1048576, not 0"),
    (["box", "-s", "3,-1", "-f", "cpu:[0] B", "-t", "B"], "--shape needs up to 8 sizes"),
    (["box", "-s", "3", "-f", "cpu:[0] B", "-t", "B", "-d", "f33"], "--dtype needs f32"),
    (["flight"], "no folder to read"),
    (["flight", "a", "b"], "there is no use for 'b'"),
    (["flight", "--last", "-1", "a"], "--last needs a number of calls, 0 to 1048576, not -1"),
    (["launch"], "no program to run"),
    (["launch", "-n", "many", "true"], "-n needs a number of ranks, 1 to 256, not many"),
    (["launch", "-m", "--no-python", "x"], "-m and --no-python exclude each other: is x a module or a program?"),
    (["launch", "--start_method", "thread", "x"], "--start-method needs spawn, fork or forkserver, not thread"),
    (["launch", "--run-path", "x"], "--run-path is for Python's multiprocessing: here each rank is a process of its own"),
    (["launch", "--local-addr", "10.0.0.1", "x"], "--local-addr: a node is known by the address from which it reaches "
     "node 0, which its routes say; leave it out"),
    (["launch", "--rdzv-conf", "is_host=1", "x"], "--rdzv-conf: there is no use for 'is_host=1' here; legal are "
     "join_timeout, timeout (the same) or rank"),
    (["launch", "--rdzv_conf", "timeout=a", "x"], "--rdzv-conf: 'timeout=a' is no number"),
    (["launch", "--rdzv_conf", "rank=1", "x"], "--node-rank 1, but --nnodes is 1"),
    (["launch", "--role", "", "x"], "--role needs a name of up to 64 characters"),
    (["launch", "--max_restart", "1", "true"], "no option --max_restart; did you mean --max-restarts?"),
    (["launch", "--nodexxnk"], "there is no option --nodexxnk\n"),
    (["launch", "--nodx-xxnk"], "there is no option --nodx-xxnk; did you mean --node-rank?"),
    (["launch", "--timeout=-1", "true"], "--timeout needs seconds, above 0, not -1"),
    (["launch", "--timeout", "0x", "true"], "--timeout needs seconds"),
    (["launch", "--timeout", "", "true"], "--timeout needs seconds, above 0, not \n"),
    (["launch", "--timeout", "1 ", "true"], "--timeout needs seconds, above 0, not 1 \n"),
    (["launch", "--timeout", "nan", "true"], "--timeout needs seconds, above 0, not nan"),
    (["launch", "--timeout", "1e9", "true"], "--timeout needs seconds, above 0, not 1e9"),
    (["flight", "--last", "1048577", "a"], "--last needs a number of calls, 0 to 1048576"),
    (["flight", "--last", "", "a"], "--last needs a number of calls, 0 to 1048576, not \n"),
    (["flight", "--last", "9" * 30, "a"], "--last needs a number of calls, 0 to 1048576"),
    (["box", "-n", "1048577"], "-n needs a number of ranks, 1 to 1048576, not 1048577"),
]:
    out, err = tessera(*args, code=2)
    check(text in err, f"{args}: {err!r} lacks {text!r}")
    equal(out, "", f"{args}: on stdout")
    check(f"Try `tessera {args[0]} --help`." in err, f"{args}: where to find help")

# A man page has the options that --help has.
for c in COMMANDS:
    with open(os.path.join(sys.argv[2], f"tessera-{c}.1"), encoding="utf-8") as f:
        page = f.read()
    left = re.findall(r"^  (-.*?)(?:  |$)", tessera(c, "--help")[0], re.M)
    told = {name for side in left for name in re.findall(r"--([\w-]+)", side)}
    letters = {letter for side in left for letter in re.findall(r"(?:^|, )(-\w)\b", side)}
    listed = re.findall(r"^\.It (.*)$", page, re.M)
    listed = [x for x in listed if x.startswith("Fl")]
    equal({x for line in listed for x in re.findall(r"Fl -([\w-]+)", line)}, told, f"tessera-{c}.1")
    equal({"-" + x for line in listed for x in re.findall(r"Fl (\w)\b", line)}, letters,
          f"tessera-{c}.1: letters")
    check(f".Xr tessera-{c} 1" in open(os.path.join(sys.argv[2], "tessera.1")).read(), c)

# torchrun's options: a module, a role, and what is taken for other options.
out, _ = tessera("launch", "-n2", "-m", "platform", "--terse", env={"PYTHON_EXEC": sys.executable})
equal(out, 2 * subprocess.run([sys.executable, "-m", "platform", "--terse"], capture_output=True, text=True,
                              check=True).stdout, "launch -m")
_, err = tessera("launch", "-m", "x", code=127, env={"PYTHON_EXEC": "no-python-here"})
check("can't run 'no-python-here': there is no such program in PATH" in err, err)
out, _ = tessera("launch", "--no_python", "--role", "worker", "--start-method=spawn", "--rdzv_conf",
                 "join_timeout=3,timeout=4,rank=0", "--nnodes=1", "--nproc_per_node=2", "--", "sh", "-c",
                 "echo $ROLE_NAME $RANK $ROLE_WORLD_SIZE")
equal(sorted(out.splitlines()), ["worker 0 2", "worker 1 2"], "launch as torchrun")
equal(tessera("launch", "sh", "-c", "echo $ROLE_NAME")[0], "default\n", "the usual role")
# OpenMP's teams yield soon, where the user has not said how.
for env, said in (({}, "5000 -"), ({"GOMP_SPINCOUNT": "7"}, "7 -"), ({"OMP_WAIT_POLICY": "active"}, "- active")):
    out, _ = tessera("launch", "sh", "-c", "echo ${GOMP_SPINCOUNT:--} ${OMP_WAIT_POLICY:--}", env=env)
    equal(out, said + "\n", f"launch sets GOMP_SPINCOUNT: {env}")
# What comes behind the program is the program's.
out, _ = tessera("launch", "-n2", "echo", "-n", "--prefix", "x")
equal(out, "--prefix x--prefix x", "launch passes options on")
out, _ = tessera("launch", "--", "echo", "y")
equal(out, "y\n", "launch --")

# A program that isn't there, by path and by PATH.
for program, text in [("./no/such", "No such file or directory"),
                      ("no-such-program", "there is no such program in PATH")]:
    _, err = tessera("launch", "-n1", program, code=127)
    check(f"can't run '{program}': {text}\n" in err, err)

# It is there, and can't be run.
_, err = tessera("launch", "-n1", os.path.dirname(TESSERA), code=126)
check(f"can't run '{os.path.dirname(TESSERA)}': Permission denied\n" in err, err)

# Started without stdin, whose number the next file takes that is opened.
p = subprocess.run([TESSERA, "launch", "-n2", "echo", "x"], capture_output=True, timeout=60,
                   preexec_fn=lambda: os.close(0))
equal((p.returncode, p.stdout), (0, b"x\nx\n"), "launch: stdin is closed")

# Rank 0 reads the launcher's standard input.
out, _ = tessera("launch", "-n3", "--prefix", "cat", stdin="fed\n")
equal(out, "[0] fed\n", "launch: stdin")

# Started by a program that ignores SIGCHLD, which children inherit, it still sees how ranks end.
p = subprocess.run([TESSERA, "launch", "-n2", "sh", "-c", "exit 3"], capture_output=True, timeout=60,
                   preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
equal(p.returncode, 3, "launch: exit code where SIGCHLD is ignored")

# Addresses where nodes meet; one node needs nobody.
for text, good in [("[::1]", True), ("[::1]:29555", True), ("::1", True), ("h:1", True),
                   ("[::1", False), ("[::1]x", False), ("[::1]:", False), ("h:99999", False),
                   ("h:0x1", False)]:
    _, err = tessera("launch", "--nnodes", "1", "--node-rank", "0", "--rdzv-endpoint", text, "-n1",
                     "true", code=0 if good else 2)
    check(good or f"--rdzv-endpoint needs HOST:PORT, not {text}\n" in err, err)

# Cores are shared out among the ranks.
cores = len(os.sched_getaffinity(0))
variables = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
for n in sorted({1, cores, 2 * cores + 1} - {0}):
    p = subprocess.run([TESSERA, "launch", "-n", str(n), "sh", "-c", "echo $OMP_NUM_THREADS"],
                       capture_output=True, text=True, env=variables, timeout=60)
    equal((p.returncode, set(p.stdout.split())), (0, {str(max(1, cores // n))}), f"threads of {n}")

# A launcher that is asked to stop ends as its signal would have ended it.
p = subprocess.Popen([TESSERA, "launch", "-n1", "sh", "-c", "echo up; exec sleep 60"],
                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
equal(p.stdout.readline(), b"up\n", "launch: the rank's first word")
p.send_signal(signal.SIGTERM)
equal(p.wait(60), 128 + signal.SIGTERM, "launch: exit code after SIGTERM")
p.stdout.close()
done()
