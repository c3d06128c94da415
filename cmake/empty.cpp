// libtensorbox consists of the stage libraries; the linker wants one source of its own.
