"""Do words of the reference come out of a clone's mouth? Case D09: twenty seeds, one sentence.

    python -m recipes.minnow.judges --work DIR
    python -m recipes.cloning.leaks --work DIR [--model FOLDER] [--seeds 20] [--write]

The reference ends in words that nobody says by chance. The clone says another sentence with each
seed, and a recogniser (Whisper base) writes down the first two seconds and the whole. Once with the
reference's words known, and once without.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from pathlib import Path

import numpy as np
import soundfile

from fishtts import TTS
from fishtts.cloning.prepare import prepare
from fishtts.cloning.reference_audio import encode_reference
from fishtts.types import Reference, Voice
from recipes.cloning.similarity import write_between
from recipes.minnow.score import Recogniser, judges_audio
from recipes.minnow.teacher_onnx import SAMPLE_RATE, Teacher

BEGIN, END = "<!-- leaks: begin -->", "<!-- leaks: end -->"
REFERENCE = (
    "We came home late, tired and cold, and found the whole street dark.",
    "Only in the window of the last house, somebody had lit seven violet lanterns.",
)
LEAK = re.compile(r"seven|violet|lantern", re.IGNORECASE)
TARGET = "Please close the door before you leave."
TEACHER_VOICE = "am_puck"
HEAD_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--model", default="minnow", help="a built-in model or a folder")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="write the lines of docs/quality.md")
    args = parser.parse_args()
    tts = TTS(args.model, device="cpu", offline=True)
    recogniser = Recogniser(args.work / "whisper-base")
    codes = _reference(args.work, tts)
    found = {}
    for case, text in (("words known", " ".join(REFERENCE)), ("words unknown", "")):
        voice = Voice("leak", (Reference(codes, text),), codec=tts.codec.identity)
        heads, wholes = [], []
        for seed in range(1, args.seeds + 1):
            speech = tts.say(TARGET, voice=voice, seed=seed)
            head = speech.samples[: round(HEAD_S * speech.sample_rate)]
            heads.append(recogniser.transcribe(judges_audio(head, speech.sample_rate)))
            wholes.append(recogniser.transcribe(judges_audio(speech.samples, speech.sample_rate)))
            print(case, seed, heads[-1], "|", wholes[-1], flush=True)
        found[case] = {
            "seeds": args.seeds,
            "leaks_in_head": sum(bool(LEAK.search(text)) for text in heads),
            "leaks": sum(bool(LEAK.search(text)) for text in wholes),
            "heard": wholes,
        }
    if args.write:
        write_between(BEGIN, END, as_markdown(found, tts.card.name))
    print(json.dumps(found))


def _reference(work: Path, tts: TTS) -> np.ndarray:
    """Let the teacher say the reference, and encode what is kept of it."""
    teacher = Teacher(work / "teacher", threads=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reference.wav"
        speech = [teacher.speak(text, TEACHER_VOICE) for text in REFERENCE]
        soundfile.write(path, np.concatenate(speech), SAMPLE_RATE)
        prepared = prepare(path, text=" ".join(REFERENCE), max_s=tts.card.reference_s)
    return encode_reference(prepared.clips[0], tts.codec).codes


def as_markdown(found: dict[str, dict[str, object]], model: str) -> str:
    """Say it in a table."""
    lines = [
        "### Words of the reference in what a clone says",
        "",
        f'The reference ends in "seven violet lanterns"; the clone says "{TARGET}". Model {model},',
        f"heard by Whisper base: the first {HEAD_S:.0f} s, and all of it.",
        "",
        "| The reference's words are | Seeds | Leaks in the head | Leaks |",
        "| --- | ---: | ---: | ---: |",
    ]
    for case, figures in found.items():
        lines.append(
            f"| {case.removeprefix('words ')} | {figures['seeds']} | {figures['leaks_in_head']}"
            f" | {figures['leaks']} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
