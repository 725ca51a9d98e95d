"""An agent that records its work, and takes it back. Usage: python3 agent.py FOLDER"""
import json
import pathlib
import subprocess
import sys


class Backstitch:
    """One `backstitch serve`: a line out, a line in."""

    def __init__(self, folder):
        self.process = subprocess.Popen(
            ["backstitch", "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.last = 0
        self.call("initialize", client="my-agent", version="1")
        self.call("workspace/open", workspace=str(folder))

    def call(self, method, **params):
        self.last += 1
        request = {"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("id") != self.last:
                continue  # a notification
            if "error" in message:
                error = message["error"]
                raise RuntimeError(f"{error['data']['code']}: {error['message']}")
            return message["result"]
        raise RuntimeError("backstitch has ended")


folder = pathlib.Path(sys.argv[1]).resolve()
backstitch = Backstitch(folder)
backstitch.call("session/open", session="conversation-7")

# A prompt. The answer comes at once; the capture goes on while the model thinks.
turn = backstitch.call("turn/begin", key="message-1", prompt="Write a greeting")

# A tool that names its file costs that file only.
backstitch.call("tool/before", call="call-1", tool="write", paths=["greeting.txt"])
(folder / "greeting.txt").write_text("Hello\n")
backstitch.call("tool/after", call="call-1")

# One that names none, such as a shell, costs a look at the folder at both ends.
backstitch.call("tool/before", call="call-2", tool="shell")
subprocess.run("rm notes.txt", shell=True, cwd=folder, check=True)
backstitch.call("tool/after", call="call-2")
backstitch.call("turn/end", key="message-1")

# "Take that back": show the plan first, then carry out exactly that plan.
plan = backstitch.call("rewind/plan", to=turn["turn"])
for item in plan["items"]:
    print(item["action"], item["path"])
outcome = backstitch.call("rewind/apply", plan=plan["plan"])
print("taken back, and read back:", outcome["verified"])

backstitch.call("undo")
print("undone:", (folder / "greeting.txt").read_text().strip())
backstitch.call("shutdown")
