"""An agent's story through the Model Context Protocol. Usage: mcp_story.py BACKSTITCH FOLDER"""
import json
import pathlib
import subprocess
import sys

binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
server = subprocess.Popen([binary, "-C", str(folder), "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
ids = iter(range(1, 1000))


def send(message):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def call(method, params):
    number = next(ids)
    send({"id": number, "method": method, "params": params})
    for line in server.stdout:
        message = json.loads(line)
        if message.get("id") == number:
            assert "error" not in message, message
            return message["result"]
    raise SystemExit("the server ended")


def tool(tool_name, **arguments):
    result = call("tools/call", {"name": tool_name, "arguments": arguments})
    assert not result["isError"], result
    return result["structuredContent"]


file = folder / "b-of-mcp.txt"
hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "story", "version": "1"}}
assert call("initialize", hello)["serverInfo"]["name"] == "backstitch"
send({"method": "notifications/initialized"})
names = {t["name"] for t in call("tools/list", {})["tools"]}
looking = {"checkpoint_create", "checkpoint_list", "checkpoint_show", "diff", "log", "blame"}
assert looking | {"rewind_plan", "rewind_apply", "revert_plan", "revert_apply", "undo"} == names, names
row = tool("checkpoint_create", label="start")["checkpoint"]["id"]
file.write_text("new\n")
assert [c["path"] for c in tool("diff", name_status=True)["changes"]] == [file.name]
plan = tool("rewind_plan", to=row)
assert [(i["path"], i["action"]) for i in plan["items"]] == [(file.name, "delete")], plan
tool("rewind_apply", plan=plan["plan"])
assert not file.exists()
tool("undo")
assert file.exists()
server.stdin.close()
assert server.wait(60) == 0
print("ok")
