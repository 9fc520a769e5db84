"""The agent of the benchmark on the official Python SDK. crates/bench/src/play.rs has the language of its prompts."""

import json

import acp
from acp import schema
from bench import Watch, run, usage


class Agent:
    made = 0

    def on_connect(self, conn):
        self.client = conn

    async def initialize(self, protocol_version, **_):
        prompts = schema.PromptCapabilities(image=True)
        return acp.InitializeResponse(
            protocol_version=protocol_version,
            agent_capabilities=schema.AgentCapabilities(prompt_capabilities=prompts),
        )

    async def new_session(self, cwd, **_):
        self.made += 1
        # As long as a UUID, which is what agents use.
        return acp.NewSessionResponse(session_id=f"{self.made:036}")

    async def prompt(self, prompt, session_id, **_):
        async def say(text):
            await self.client.session_update(session_id, acp.update_agent_message_text(text))

        name, *numbers = next(block.text for block in prompt if block.type == "text").split()
        numbers = [int(number) for number in numbers]
        if name == "stream":
            count, size = numbers
            chunk = "x" * size
            for _ in range(count):
                await say(chunk)
        elif name == "read":
            watch, size = Watch(), 0
            for _ in range(numbers[0]):
                answer = await self.client.read_text_file(path="/bench/file", session_id=session_id)
                size += len(answer.content)
                watch.lap()
            await say(json.dumps({"count": numbers[0], "bytes": size, **watch.latency()}))
        elif name == "redraw":
            rounds, size = numbers
            whole, there = "x" * size, 0
            for number in range(1, rounds + 1):
                length = size * number // rounds
                await say(whole[there:length])
                # The SDK knows no clear; a chunk without text stands for one.
                await say("")
                await say(whole[:length])
                there = length
        elif name == "image":
            await say(str(sum(len(block.data) for block in prompt if block.type == "image")))
        elif name == "usage":
            await say(json.dumps(usage()))
        elif name != "end":
            raise acp.RequestError.invalid_params({"prompt": "it is none of the benchmark's"})
        return acp.PromptResponse(stop_reason="end_turn")


async def main():
    await acp.run_agent(Agent())


run(main())
