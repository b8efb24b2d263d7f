"""The reference page: public names of `mgpt`, their signatures and docstrings, read from the source without importing it.

A docstring is plain text with code in backticks and formulas of its own (max|x|, ...), so it is set as it stands: blank
lines part its paragraphs, and a paragraph with columns or indented lines keeps its line breaks.
"""

import ast
import re
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

PROPERTY = ("property", "cached_property", "functools.cached_property")


def tree_of(root, module):
    """The syntax tree of a module like mgpt.memory, and its file."""
    path = Path(root).joinpath(*module.split(".")).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8")), path


def public_names(tree):
    """`__all__` where there is one, otherwise the functions and classes that the module defines without underscore."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if not name.isupper()]
    return [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_"]


def definition(root, module, name):
    """(node, file) of a function or class of a module, or of the module that it is imported from.  KeyError if none."""
    tree, path = tree_of(root, module)
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node, path
        if isinstance(node, ast.ImportFrom) and node.module.startswith("mgpt."):
            if name in [alias.asname or alias.name for alias in node.names]:
                return definition(root, node.module, name)
    raise KeyError(name)


def parameters(node, tree=None):
    """The parameters of a function or of a class's constructor, each as text; None for a property.

    tree: the module, where the fields that a dataclass inherits are looked for.
    """
    decorators = [ast.unparse(item).split("(")[0] for item in node.decorator_list]
    if isinstance(node, ast.ClassDef):
        if "dataclass" in decorators:
            bases = [ast.unparse(base) for base in node.bases]
            inherited = [item for item in (tree.body if tree else []) if isinstance(item, ast.ClassDef) and item.name in bases]
            fields = [item for item in node.body if isinstance(item, ast.AnnAssign) and item.target.id[0] != "_"]
            return [field for base in inherited for field in parameters(base, tree)] + [
                item.target.id + default(item.value) for item in fields]
        found = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
        return parameters(found[0])[1:] if found else []
    if any(name in PROPERTY for name in decorators):
        return None
    bare = ast.arguments(**{key: getattr(node.args, key) for key in node.args._fields})
    for argument in [*bare.posonlyargs, *bare.args, *bare.kwonlyargs]:
        argument.annotation = None
    return [part for part in re.split(r", (?![^(\[{]*[)\]}])", ast.unparse(bare)) if part]


def default(value):
    if value is None:
        return ""
    return "=…" if isinstance(value, ast.Call) else f"={ast.unparse(value)}"


def members(node, root, module):
    """The documented public methods and properties of a class, after those of its bases in the package."""
    if not isinstance(node, ast.ClassDef):
        return []
    found = {}
    for base in node.bases:
        try:
            found |= {item.name: item for item in members(definition(root, module, ast.unparse(base))[0], root, module)}
        except KeyError:  # a base of another package
            pass
    found |= {item.name: item for item in node.body if isinstance(item, ast.FunctionDef) and item.name[0] != "_"
              and ast.get_docstring(item)}
    return list(found.values())


def set_text(docstring):
    """Docutils nodes of a docstring."""
    result = []
    for part in re.split(r"\n\s*\n", docstring):
        lines = part.splitlines()
        if any(line.startswith("  ") or re.search(r"\S {2,}[^ ]", line.replace(".  ", ". ")) for line in lines):
            result.append(nodes.literal_block(part, part, language="none"))
            continue
        paragraph = nodes.paragraph(support_smartquotes=False)  # ".." and quotes are code here
        for index, piece in enumerate(re.sub(r"\s+", " ", part).split("`")):
            if piece:
                paragraph += nodes.literal(piece, piece) if index % 2 else nodes.Text(piece)
        result.append(paragraph)
    return result


class Reference(SphinxDirective):
    """```{reference} mgpt.memory: the module's docstring, and the entries of its public names, or of `:names:` alone."""

    required_arguments = 1
    option_spec = {"names": directives.unchanged_required}

    def run(self):
        module, root = self.arguments[0], Path(self.env.srcdir)
        tree, path = tree_of(root, module)
        self.env.note_dependency(str(path))
        names = self.options["names"].split() if "names" in self.options else public_names(tree)
        result = set_text(ast.get_docstring(tree))
        for name in names:
            try:
                node, file = definition(root, module, name)
            except KeyError:
                raise self.error(f"{module} has no public function or class {name}") from None
            self.env.note_dependency(str(file))
            self.env.note_dependency(__file__)
            result += self.entry(module, name, node)
        return result

    def entry(self, module, name, node):
        docstring = ast.get_docstring(node)
        if not docstring:
            raise self.error(f"{module}.{name} has no docstring")
        anchor = f"{module}.{name}"
        kind = "class" if isinstance(node, ast.ClassDef) else "function"
        signature = addnodes.desc_signature("", "", ids=[anchor])
        if kind == "class":
            signature += addnodes.desc_annotation("", "class ")
        signature += addnodes.desc_name("", name.split(".")[-1])
        given = parameters(node, tree_of(self.env.srcdir, module)[0])
        if given is not None:
            signature += addnodes.desc_parameterlist(
                "", "", *(addnodes.desc_parameter("", "", addnodes.desc_sig_name("", part)) for part in given))
        content = addnodes.desc_content("", *set_text(docstring))
        for member in members(node, Path(self.env.srcdir), module):
            content += self.entry(module, f"{name}.{member.name}", member)
        self.set_source_info(content)
        for paragraph in content.findall(nodes.paragraph):
            self.set_source_info(paragraph)
        entry = addnodes.desc("", signature, content, domain="py", objtype=kind, desctype=kind, no_index=True)
        entry["classes"] += ["py", kind]
        index = addnodes.index(entries=[("single", f"{name.split('.')[-1]} ({module})", anchor, "", None)])
        return [index, entry]


def setup(app):
    app.add_directive("reference", Reference)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
