"""What is probably wrong with a corpus: labels that are wrong or missing, documents and labels that are there twice."""
