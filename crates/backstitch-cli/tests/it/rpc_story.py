"""The story of a turn through JSON-RPC: prompt, writes, rewind, undo. Usage: rpc_story.py BACKSTITCH FOLDER"""
import json
import pathlib
import subprocess
import sys

binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
server = subprocess.Popen([binary, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
ids = iter(range(1, 1000))


def call(method, **params):
    request = {"jsonrpc": "2.0", "id": next(ids), "method": method, "params": params}
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    for line in server.stdout:
        message = json.loads(line)
        if message.get("id") == request["id"]:
            assert "error" not in message, message
            return message["result"]
    raise SystemExit("the server ended")


file = folder / "a.txt"
before = file.read_text()
call("initialize", client="story", version="1")
call("workspace/open", workspace=str(folder))
call("session/open", session="story")
turn = call("turn/begin", key="prompt-1", prompt="Make it faster")
call("tool/before", call="call-1", tool="write", paths=["a.txt"])
file.write_text("faster\n")
call("tool/after", call="call-1")
call("turn/end", key="prompt-1")
assert call("turn/wait", key="prompt-1")["checkpoint"]["id"] == turn["id"]
plan = call("rewind/plan", to=turn["turn"])
assert [i["action"] for i in plan["items"]] == ["overwrite"], plan
call("rewind/apply", plan=plan["plan"])
assert file.read_text() == before
call("undo")
assert file.read_text() == "faster\n"
call("undo", steps=1) if call("operations")["next_undo"] else None
call("shutdown")
assert server.wait(60) == 0
print("ok")
