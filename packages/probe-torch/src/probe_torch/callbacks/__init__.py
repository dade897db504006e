"""Dump the steps of trainers whose loop is a library's, by callbacks: a module for each library."""
