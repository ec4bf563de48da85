"""ViSIL: the information of a video that a summary loses (docs/visil.md).

from vcs_runtime.visil import Image, Summary, Video, visil
results = visil(Video(frames), caption, keywords, [Summary("A man parks.")], model)
"""

from vcs_runtime.visil.logprobs import Forced, Image, LogProbs
from vcs_runtime.visil.masking import MaskedCaption, mask_caption
from vcs_runtime.visil.probing import probe
from vcs_runtime.visil.recorded import Recorded, Recorder
from vcs_runtime.visil.score import Options, Summary, Video, VisilResult, visil
from vcs_runtime.visil.selection import frontier, select_summary
from vcs_runtime.visil.timecode import parse_timecode

__all__ = [
    "Forced",
    "Image",
    "LogProbs",
    "MaskedCaption",
    "Options",
    "Recorded",
    "Recorder",
    "Summary",
    "Video",
    "VisilResult",
    "frontier",
    "mask_caption",
    "parse_timecode",
    "probe",
    "select_summary",
    "visil",
]
