"""The paper's figures and tables: what is run, by whom, what is kept, what it shows."""
