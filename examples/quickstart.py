"""DeepInfer in Python, from the first text to a small server's worth of tasks.

    python examples/quickstart.py models/seedling

Each part stands alone, as the cells of a notebook do. Docs: docs/python.md.
"""

import asyncio
import sys

import numpy

from deepinfer import LLM, AsyncEngine, InvalidArgument, SamplingParams, gather

MODEL = sys.argv[1] if len(sys.argv) > 1 else "models/seedling"

# --- A batch ------------------------------------------------------------------------------------
# All prompts run together; the results come in the order of the prompts. A text depends on its
# prompt and parameters alone: alone or in a batch, it is the same to the last bit.

llm = LLM(MODEL, context=1024, max_num_seqs=32)

prompts = ["What is a volcano?", "The fox and the crow", "Once upon a time"]
params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=24, seed=1)
for prompt, text in zip(prompts, llm.generate(prompts, params, use_tqdm=False), strict=True):
    print(f"{prompt!r} -> {text!r}")

# --- More than the text -------------------------------------------------------------------------
# generate_outputs tells what is known of each token. The arrays are views, not copies.

(output,) = llm.generate_outputs(
    "What is a volcano?",
    SamplingParams(temperature=0, max_tokens=16, top_logprobs=3),
    use_tqdm=False,
)
choice = output.outputs[0]
print(f"ended by {choice.finish_reason} after {len(choice.token_ids)} tokens")
assert choice.logprobs_array is not None and choice.top_logprobs is not None
print(f"perplexity of the answer: {numpy.exp(-choice.logprobs_array.mean()):.2f}")
tokenizer = llm.get_tokenizer()
for token, best in list(zip(choice.token_ids, choice.top_logprobs, strict=True))[:3]:
    others = ", ".join(f"{tokenizer.decode([other])!r} {logprob:.2f}" for other, logprob in best)
    print(f"{tokenizer.decode([token])!r} out of {others}")

# Several answers to one prompt share the work on the prompt.
(output,) = llm.generate_outputs("A poem:", SamplingParams(n=3, max_tokens=8), use_tqdm=False)
print([choice.text for choice in output.outputs])

# --- As it comes --------------------------------------------------------------------------------
# A stream yields what is new. Leaving the loop ends the request.

for piece in llm.stream("Tell me a story about a fox.", SamplingParams(max_tokens=24, seed=2)):
    print(piece.text, end="", flush=True)
print()

# --- A conversation -----------------------------------------------------------------------------

question = {"role": "user", "content": "What is 7 + 5?"}
answer = llm.chat([question], SamplingParams(temperature=0, max_tokens=64), thinking=False)
print(f"{question['content']} {answer.content}")

# --- Errors -------------------------------------------------------------------------------------
# Everything is checked before anything runs; the message says what to change.

try:
    llm.generate("Hello", SamplingParams(temperature=-1))
except InvalidArgument as error:
    print(f"refused: {error}")

print(f"{llm.stats()['total_output_tokens']} tokens drawn")
llm.close()

# --- Tasks --------------------------------------------------------------------------------------
# In a program on asyncio each task asks for itself, and the engine batches what runs together.
# Cancelling a task ends its request.


async def ask(engine: AsyncEngine, prompt: str) -> str:
    params = SamplingParams(temperature=0, max_tokens=16)
    pieces = [piece async for piece in engine.generate(prompt, params)]
    return gather(pieces).text


async def main() -> None:
    async with await AsyncEngine.open(MODEL, context=1024, max_num_seqs=32) as engine:
        for text in await asyncio.gather(*(ask(engine, prompt) for prompt in prompts)):
            print(repr(text))

        story = asyncio.create_task(
            engine.complete("A very long story", SamplingParams(max_tokens=900))
        )
        await asyncio.sleep(0.1)
        story.cancel()


asyncio.run(main())
