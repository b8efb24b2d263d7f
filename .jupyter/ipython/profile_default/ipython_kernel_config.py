# Kernels of the build, the tests and `make lab` start alike on every machine, and say only what matters.
c = get_config()  # noqa: F821
c.IPKernelApp.log_level = 40  # the note about TCP on the loopback interface is no news here
c.HistoryManager.enabled = False
