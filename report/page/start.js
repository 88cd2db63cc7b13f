// Shows the report that the page holds.
followTheme();
showReport(JSON.parse(document.getElementById('report').textContent));
