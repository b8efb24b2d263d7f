# Kernels of the build, the tests and `make lab` start alike on every machine, and say only what matters.
c = get_config()  # noqa: F821
c.IPKernelApp.log_level = 40  # the note about TCP on the loopback interface is no news here
c.HistoryManager.enabled = False
# What a cell prints leaves in one piece, not every 0.2 s: a slow machine would cut lines in two, at other places each time.
c.IPKernelApp.exec_lines = ["__import__('sys').stdout.flush_interval = 20"]
