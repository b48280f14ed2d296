# /// script
# dependencies = ["fishtts"]
# ///
"""Speak like a recording: python examples/imitate.py RECORDING "ITS WORDS" [MODEL]

Use it for your own voice, or with the speaker's consent.
"""

import sys

from fishtts import TTS
from fishtts.errors import FishTTSError

recording, words, *model = sys.argv[1:]
try:
    speech = TTS(*model).say("I never said this.", voice=recording, ref_text=words)
except FishTTSError as error:
    sys.exit(str(error))
speech.save("imitated.wav", force=True)
print(f"The voice of {speech.report.voice} is in imitated.wav.")
for note in speech.report.notes:
    print(note)
