"""Setup of all tests."""

import signal

# A shell that runs this in the background lets it ignore Ctrl-C, and whatever it starts too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
