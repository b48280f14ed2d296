# /// script
# dependencies = ["fishtts"]
# ///
"""Speak a sentence into a file: python examples/speak.py [MODEL]"""

import sys

from fishtts import TTS

tts = TTS(*sys.argv[1:2])
speech = tts.say("The tide came in before anyone noticed.", seed=7)
speech.save("tide.wav", force=True)

print(f"{len(speech.samples) / speech.sample_rate:.1f} s at {speech.sample_rate} Hz")
for problem in speech.report.problems:
    print(problem)
