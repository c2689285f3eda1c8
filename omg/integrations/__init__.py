"""Other frameworks, each behind an extra of its own. Nothing else imports from here."""
