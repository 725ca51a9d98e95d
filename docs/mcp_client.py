"""The tools of `backstitch mcp` through the official Python library (`pip install mcp`). Usage: mcp_client.py SERVER [ARGUMENT...]"""
import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main():
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = await session.list_tools()
        print("tools:", *(t.name for t in tools.tools))
        for name, arguments in [
            ("checkpoint_create", {"label": "from python"}),
            ("checkpoint_list", {"limit": 1}),
            ("diff", {}),
            ("rewind_plan", {"to": "from python"}),
            ("rewind_plan", {"to": "nobody/turn:1"}),
        ]:
            result = await session.call_tool(name, arguments)
            print(name, result.content[0].text[:160])


asyncio.run(main())
