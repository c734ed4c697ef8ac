"""The first ten minutes: a check of the installation, files to start from, words explained."""
