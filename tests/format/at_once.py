"""Work that many threads do at the same time, or a fork of this process, which takes less than a new one."""

import os
import threading
import traceback


def in_threads(work, *arguments, meanwhile=None):
    """Do the work once for each of the arguments. meanwhile: called again and again until all is done, if given."""
    threads = [threading.Thread(target=work, args=(each,)) for each in arguments]
    for thread in threads:
        thread.start()
    while meanwhile is not None and any(thread.is_alive() for thread in threads):
        meanwhile()
    for thread in threads:
        thread.join()


def forked(work, *arguments):
    """Begin the work in a fork. Return what waits for its end, and fails where it has failed."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work(*arguments)
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)

    def ended():
        assert os.waitpid(child, 0)[1] == 0

    return ended
