"""What a kernel is: its oracle's vocabulary, formats, inputs, spellings, bounds with their source. No torch here."""
