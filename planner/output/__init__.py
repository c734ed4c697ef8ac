"""What all commands write with: files, pictures, the terminal, and how they end."""
