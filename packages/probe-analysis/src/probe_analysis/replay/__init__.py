"""Run recorded calls of functions again, exactly, and say how far what was recorded is from that."""
