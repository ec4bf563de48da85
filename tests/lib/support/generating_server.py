"""The made-up model of `fake_server` behind APIs for log-probabilities of generated answers."""

from __future__ import annotations

from typing import Any

from support.fake_server import Handler, likeliest


class Listening(Handler):
    """Keeps the headers of each request."""

    headers_seen: list[dict[str, str]]

    def do_POST(self) -> None:
        self.headers_seen.append(dict(self.headers))
        super().do_POST()


class GeneratingHandler(Listening):
    """The made-up model behind OpenAI's chat API or Gemini's, which generates."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        if "contents" in body:
            settings = body["generationConfig"]
            room, top = settings["maxOutputTokens"], settings["logprobs"]
            content = [
                (
                    {"type": "text", "text": part["text"]}
                    if "text" in part
                    else {"type": "image_url", "image_url": {"url": part["inlineData"]["data"]}}
                )
                for part in body["contents"][0]["parts"]
            ]
            tokens = self.turn({"messages": [{"content": content}]})
        else:
            room, top = body["max_tokens"], body["top_logprobs"]
            tokens = self.turn(body)
        length, places = len(tokens), []
        for _ in range(min(room, 6)):
            places.append([(token, self.one(value)) for token, value in likeliest(tokens)[:top]])
            tokens = [*tokens, places[-1][0][0]]
        text = "".join(place[0][0] for place in places)
        if "contents" in body:
            entry = [[{"token": t, "logProbability": v} for t, v in place] for place in places]
            result = {
                "chosenCandidates": [place[0] for place in entry],
                "topCandidates": [{"candidates": place} for place in entry],
            }
            candidate = {"content": {"parts": [{"text": text}]}, "logprobsResult": result}
            return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": length}}
        listed = [[{"token": t, "logprob": v} for t, v in place] for place in places]
        content = [{**place[0], "top_logprobs": place} for place in listed]
        return {
            "choices": [{"message": {"content": text}, "logprobs": {"content": content}}],
            "usage": {"prompt_tokens": length},
        }
