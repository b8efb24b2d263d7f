"""Search in English and Chinese at once: a run of Chinese characters is indexed, and asked for, by its pairs.

Sphinx takes such a run for one word, which nobody types whole.  Each character is indexed too, for questions of one.
"""

import re

from sphinx.search.en import SearchEnglish

HAN = "\u3400-\u4dbf\u4e00-\u9fff"


def pairs(run):
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


class EnglishAndChinese(SearchEnglish):
    # What `split` does to a page this does to a question, only that a longer run needs no single characters.
    js_splitter_code = f"""
var splitQuery = (query) => query.match(/[{HAN}]+|[\\p{{L}}\\p{{N}}_](?:(?![{HAN}])[\\p{{L}}\\p{{N}}_])*/gu)?.flatMap((word) =>
  /[{HAN}]/.test(word) && word.length > 2 ? [...word].slice(1).map((_, i) => word.slice(i, i + 2)) : [word]) ?? [];
"""

    def split(self, text):
        found = []
        for word in re.findall(rf"[{HAN}]+|(?:(?![{HAN}])\w)+", text):
            found += [*word, *pairs(word)] if re.match(f"[{HAN}]", word) and len(word) > 1 else [word]
        return found


def setup(app):
    app.add_search_language(EnglishAndChinese)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
