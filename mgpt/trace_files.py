def load_traces(path): raise ValueError
