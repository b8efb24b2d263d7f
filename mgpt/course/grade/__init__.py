"""What an instructor runs: `mgpt grade`.  Submissions are bytes, reports are data, nothing of a learner's is trusted."""
