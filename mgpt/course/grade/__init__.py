"""What an instructor runs: `mgpt grade`.  Submissions are bytes, reports are data, nothing in them is trusted."""
