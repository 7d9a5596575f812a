"""How processes of this project start. No torch here."""
