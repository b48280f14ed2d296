# /// script
# dependencies = ["fishtts", "soundfile"]
# ///
"""Use speech while it is being made: python examples/stream.py [MODEL]

Here the chunks go into a file; a sound card or a socket takes them as well.
"""

import sys

import soundfile

from fishtts import TTS

TEXT = """The lamp went out at nine. Nobody moved.
Then, very slowly, the door began to open."""

stream = TTS(*sys.argv[1:2]).stream(TEXT)
with soundfile.SoundFile("lamp.wav", "w", stream.sample_rate, channels=1) as file:
    for samples in stream:
        file.write(samples)
        print(f"{len(samples) / stream.sample_rate:.2f} s more")

for unit in stream.report.units:
    print(f"{unit.start_s:6.2f} s  {unit.status:10}  {unit.text}")
